package main

// sarama. What it does is in ../../stages.py. Its Version stays at the default, as in most programs.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama-client"
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = wait/3, wait/3, wait/3
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	return config
}

func messages(topic string, values []string, partitions int) []*sarama.ProducerMessage {
	var made []*sarama.ProducerMessage
	for n, value := range values {
		made = append(made, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(n % partitions), Value: sarama.StringEncoder(value),
		})
	}
	return made
}

type member struct {
	found chan string
	done  chan struct{}
}

func (m member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			session.MarkMessage(message, "")
			m.found <- string(message.Value)
		case <-m.done:
			session.Commit()
			return nil
		case <-session.Context().Done():
			return nil
		}
	}
}

func readInGroup(bootstrap, group, topic string, count int) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	joined, err := sarama.NewConsumerGroup([]string{bootstrap}, group, settings())
	if err != nil {
		return nil, err
	}
	m := member{make(chan string, count), make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- joined.Consume(ctx, []string{topic}, m) }()
	var values []string
	for len(values) < count {
		select {
		case value := <-m.found:
			values = append(values, value)
		case err := <-ended:
			return nil, fmt.Errorf("%d of %d records: %w", len(values), count, err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	close(m.done)
	<-ended
	return values, joined.Close()
}

func group(bootstrap, run string) (outcome, error) {
	topic := run + "-orders"
	var seen [][]string
	var committed []int64
	for _, turn := range []struct {
		word  string
		codec sarama.CompressionCodec
	}{{"plain", sarama.CompressionNone}, {"gzip", sarama.CompressionGZIP}} {
		config := settings()
		config.Producer.Compression = turn.codec
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
		if err != nil {
			return nil, err
		}
		if err := producer.SendMessages(messages(topic, values(turn.word), 2)); err != nil {
			return nil, err
		}
		if err := producer.Close(); err != nil {
			return nil, err
		}
		found, err := readInGroup(bootstrap, run+"-group", topic, 10)
		if err != nil {
			return nil, err
		}
		sum, err := committedSum(bootstrap, run+"-group", topic)
		if err != nil {
			return nil, err
		}
		seen, committed = append(seen, sorted(found)), append(committed, sum)
	}
	return outcome{"first": seen[0], "second": seen[1], "committed": committed}, nil
}

func committedSum(bootstrap, group, topic string) (int64, error) {
	asking, err := sarama.NewClusterAdmin([]string{bootstrap}, settings())
	if err != nil {
		return 0, err
	}
	defer asking.Close()
	found, err := asking.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, block := range found.Blocks[topic] {
		sum += block.Offset
	}
	return sum, nil
}

func transactions(bootstrap, run string) (outcome, error) {
	topic := run + "-booked"
	config := settings()
	config.Producer.Idempotent, config.Producer.Transaction.ID, config.Net.MaxOpenRequests = true, run+"-tx", 1
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	for n, turn := range [][]string{booked[:3], {"dropped"}, booked[3:]} {
		if err := producer.BeginTxn(); err != nil {
			return nil, err
		}
		if err := producer.SendMessages(messages(topic, turn, 1)); err != nil {
			return nil, err
		}
		if n == 0 {
			offsets := map[string][]*sarama.PartitionOffsetMetadata{run + "-orders": {{Partition: 0, Offset: 7, LeaderEpoch: -1}}}
			if err := producer.AddOffsetsToTxn(offsets, run+"-ledger"); err != nil {
				return nil, err
			}
		}
		end := producer.CommitTxn
		if n == 1 {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	producer.Close()
	config = settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	reader, err := sarama.NewConsumer([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	from, err := reader.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	var found []string
	for late := time.After(wait); len(found) < len(booked); {
		select {
		case message := <-from.Messages():
			found = append(found, string(message.Value))
		case <-late:
			return nil, fmt.Errorf("%d of %d records", len(found), len(booked))
		}
	}
	// of partition 1 nothing is committed, which is -1
	sum, err := committedSum(bootstrap, run+"-ledger", run+"-orders")
	return outcome{"committed": found, "offset": sum + 1}, err
}

func admin(bootstrap, run string) (outcome, error) {
	topic, retention := run+"-made", "3600000"
	asking, err := sarama.NewClusterAdmin([]string{bootstrap}, settings())
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	detail := sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	if err := asking.CreateTopic(topic, &detail, false); err != nil {
		return nil, err
	}
	said := outcome{"deleted": true}
	for until := time.Now().Add(wait); time.Now().Before(until) && said["partitions"] == nil; {
		described, err := asking.DescribeTopics([]string{topic})
		if err != nil {
			return nil, err
		}
		if described[0].Err == sarama.ErrNoError {
			said["partitions"] = len(described[0].Partitions)
		}
	}
	entries, err := asking.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name == "retention.ms" {
			said["retention"] = entry.Value
		}
	}
	return said, asking.DeleteTopic(topic)
}

func name(err error) string {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("KError(%d)", int16(code))
	}
	var produced sarama.ProducerErrors
	if errors.As(err, &produced) && len(produced) > 0 {
		return name(produced[0].Err)
	}
	if errors.Is(err, sarama.ErrOutOfBrokers) {
		return "ErrOutOfBrokers"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "DeadlineExceeded"
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	run("sarama "+version("github.com/IBM/sarama"), name, map[string]func(string, string) (outcome, error){
		"group": group, "transactions": transactions, "admin": admin,
	})
}
