"""Slice a digit classifier over three ranks and ResNet-50 over two, on this machine."""
