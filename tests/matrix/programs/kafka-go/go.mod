module kafka-go-client

go 1.24

require github.com/segmentio/kafka-go v0.4.51
