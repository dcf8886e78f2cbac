"""From a waveform to phones, as in the paper's experiments on TIMIT (body; appendix B)."""
