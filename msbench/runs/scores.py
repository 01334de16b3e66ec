"""Metrics and timing of a finished run, for its record."""

from msbench.datasets.dataset import TaskInfo
from msbench.results.record import get_metric_key
from msbench.training.evaluate import Predictions
from msbench.training.state import TrainingProgress


def scores(progress: TrainingProgress, test: Predictions, info: TaskInfo) -> dict[str, float]:
    """Return metrics on the test split and, of the best epoch, on the validation split."""
    assert progress.best_epoch is not None, "a finished run has validated at least once"
    metrics = {
        "test_accuracy": test.accuracy,
        "test_loss": test.loss,
        "validation_accuracy": progress.rows[progress.best_epoch]["validation_accuracy"],
        "best_epoch": float(progress.best_epoch),
    }
    if info.metric == "macro-auroc":
        found = test.macro_auroc
        metrics |= {
            get_metric_key("test", "macro-auroc"): found.value,
            get_metric_key("validation", "macro-auroc"): progress.best_score,
            "classes_scored": float(found.scored),
            "classes_left_out": float(found.left_out),
        }
    return metrics


def speed(progress: TrainingProgress) -> dict[str, float]:
    """Return the duration of training, over all attempts, and its speed."""
    rate = progress.train_tokens / max(progress.train_seconds, 1e-9)
    return {"train_seconds": progress.train_seconds, "tokens_per_second": rate}
