"""What screens are made of: lists and trees drawn by line, bars, colours, the filter's input."""
