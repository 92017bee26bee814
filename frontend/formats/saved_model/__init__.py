"""SavedModel folders of TensorFlow, which become ``.tflite`` files before they are read."""
