"""Metrics of a run: writes them as TensorBoard events, and reads them from the run's files."""

#: The file to which `train eval` appends; `checkpoint` is the number of each line's model.
EVALUATED = "evaluations_held_out.jsonl"
