"""Training: data order, schedule, loop, evaluation, checkpoints and the per-epoch log."""
