"""One exchange on the screen: its fields and bytes, compared, in its connection, sent again, copied and exported."""
