"""A run's figures as TensorBoard events and as plots."""

#: The file to which `train eval` appends; `checkpoint` is the number of each line's model.
EVALUATED = "evaluations_held_out.jsonl"
