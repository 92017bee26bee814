"""Files and folders: opened, named, written and replaced."""
