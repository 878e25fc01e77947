"""How results are shown: one tree of blocks, rendered as text and as HTML."""
