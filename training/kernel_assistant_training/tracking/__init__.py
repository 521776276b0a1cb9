"""A run's figures: as TensorBoard events, and read from their files."""

#: The file to which `train eval` appends; `checkpoint` is the number of each line's model.
EVALUATED = "evaluations_held_out.jsonl"
