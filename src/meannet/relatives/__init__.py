"""What the paper compares dropout with, and what a reader would."""
