"""Commands for many captures together: the pipeline and its reports."""
