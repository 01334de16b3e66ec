"""From a suite to the records of its runs: plan, identity, execution and launchers."""
