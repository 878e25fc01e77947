"""The course as files: what is built, copied to the learner, executed and reported."""
