"""Detections of a run: boxes drawn on its images, and a COCO file."""
