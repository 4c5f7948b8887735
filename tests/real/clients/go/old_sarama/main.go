// A sarama client of a given age: produces with every codec, reads half, commits, and resumes with the rest.
//
//	main BOOTSTRAP VERSION TOPIC COUNT
//
// Prints one JSON object: the records as [partition, offset, key, value, milliseconds], and each run's commits.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

type row [5]any

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func produce(address string, version sarama.KafkaVersion, topic string, count int) {
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy}
	if version.IsAtLeast(sarama.V0_10_0_0) {
		codecs = append(codecs, sarama.CompressionLZ4)
	}
	for _, codec := range codecs {
		config := sarama.NewConfig()
		config.Version = version
		config.Producer.Return.Successes = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Compression = codec
		config.Producer.Partitioner = sarama.NewManualPartitioner
		producer, err := sarama.NewSyncProducer([]string{address}, config)
		check(err)
		var messages []*sarama.ProducerMessage
		for i := 0; i < count; i++ {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(i % 2), Key: sarama.StringEncoder("k" + strconv.Itoa(i)),
				Value:     sarama.StringEncoder(fmt.Sprintf("%v %d", codec, i)),
				Timestamp: time.UnixMilli(1600000000000 + int64(i)),
			})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}
}

// read takes the next `most` records of each partition from where the group stands, and commits.
func read(address string, version sarama.KafkaVersion, topic string, most int) ([]row, []int64) {
	config := sarama.NewConfig()
	config.Version = version
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient([]string{address}, config)
	check(err)
	defer client.Close()
	offsets, err := sarama.NewOffsetManagerFromClient("group-of-"+topic, client)
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	var rows []row
	var starts []int64
	for partition := int32(0); partition < 2; partition++ {
		manager, err := offsets.ManagePartition(topic, partition)
		check(err)
		next, _ := manager.NextOffset()
		starts = append(starts, next)
		messages, err := consumer.ConsumePartition(topic, partition, next)
		check(err)
		for i := 0; i < most; i++ {
			select {
			case m := <-messages.Messages():
				rows = append(rows, row{m.Partition, m.Offset, string(m.Key), string(m.Value), m.Timestamp.UnixMilli()})
				manager.MarkOffset(m.Offset+1, "read")
			case err := <-messages.Errors():
				log.Fatal(err)
			case <-time.After(30 * time.Second):
				log.Fatal("nothing to read for 30 s")
			}
		}
		check(messages.Close())
		check(manager.Close())
	}
	check(offsets.Close())
	return rows, starts
}

func main() {
	address, topic := os.Args[1], os.Args[3]
	version, err := sarama.ParseKafkaVersion(os.Args[2])
	check(err)
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	produce(address, version, topic, count)
	total := count * 3 / 2
	if version.IsAtLeast(sarama.V0_10_0_0) {
		total = count * 2
	}
	first, began := read(address, version, topic, total/2)
	second, resumed := read(address, version, topic, total-total/2)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"records": append(first, second...), "began": began, "resumed": resumed,
	}))
}
