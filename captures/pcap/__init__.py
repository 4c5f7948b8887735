"""Packets: pcap and pcapng files, IP and TCP, and streams put together again."""
