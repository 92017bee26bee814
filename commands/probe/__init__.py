"""Ask boards what they have, measure what connects them, and write it as a platform file."""
