"""Commands for many captures: the pipeline and its reports."""
