"""The metrics of an epoch: rows are kept in the checkpoint, and the whole log is rewritten from them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochRow:
    """Metrics of one epoch. Accuracies and AUROCs are fractions; tokens per second exclude padding."""

    epoch: int
    step: int
    lr: float
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    seconds: float
    tokens_per_second: float
    padding: float
    """Share of padded positions among all positions of the epoch's batches."""
    validation_macro_auroc: float | None = None
    """Set only if it is the metric of the task."""

    @property
    def score(self) -> float:
        """The score that the best epoch is chosen by: the metric of the task on the validation split."""
        auroc = self.validation_macro_auroc
        return self.validation_accuracy if auroc is None else auroc
