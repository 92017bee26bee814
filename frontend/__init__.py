"""Model + mapping + platform to plan + sub-models."""
