"""The judge: drives a subject along what the model says and compares the subject's own words with the model's."""
