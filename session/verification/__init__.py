"""Whether a job's results are those of the unsliced model, and which tensor differs first."""
