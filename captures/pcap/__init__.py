"""pcap and pcapng files, IP and TCP packets, and TCP reassembly."""
