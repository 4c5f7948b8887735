package main

// segmentio/kafka-go. What it does is in ../../stages.py. Its writers have no transactions.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

func group(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*wait/2)
	defer cancel()
	topic := run + "-orders"
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: wait}
	var seen [][]string
	var committed []int64
	for _, turn := range []struct {
		word  string
		codec kafka.Compression
	}{{"plain", 0}, {"gzip", kafka.Gzip}} {
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap), Topic: topic, Compression: turn.codec, RequiredAcks: kafka.RequireAll,
			Balancer: &kafka.RoundRobin{}, BatchTimeout: 20 * time.Millisecond, MaxAttempts: 3,
		}
		var messages []kafka.Message
		for _, value := range values(turn.word) {
			messages = append(messages, kafka.Message{Value: []byte(value)})
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			return nil, err
		}
		if err := writer.Close(); err != nil {
			return nil, err
		}
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{bootstrap}, GroupID: run + "-group", Topic: topic, MaxWait: 200 * time.Millisecond,
			StartOffset: kafka.FirstOffset, MaxAttempts: 3,
		})
		var read []kafka.Message
		for len(read) < 10 {
			message, err := reader.FetchMessage(ctx)
			if err != nil {
				return nil, fmt.Errorf("%d of 10 records: %w", len(read), err)
			}
			read = append(read, message)
		}
		if err := reader.CommitMessages(ctx, read...); err != nil {
			return nil, err
		}
		if err := reader.Close(); err != nil {
			return nil, err
		}
		found, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: run + "-group", Topics: map[string][]int{topic: {0, 1}}})
		if err != nil {
			return nil, err
		}
		sum := int64(0)
		for _, partition := range found.Topics[topic] {
			sum += partition.CommittedOffset
		}
		var words []string
		for _, message := range read {
			words = append(words, string(message.Value))
		}
		seen, committed = append(seen, sorted(words)), append(committed, sum)
	}
	return outcome{"first": seen[0], "second": seen[1], "committed": committed}, nil
}

func admin(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	topic := run + "-made"
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: wait}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
	}}})
	if err != nil {
		return nil, err
	}
	if err := made.Errors[topic]; err != nil {
		return nil, err
	}
	said := outcome{"deleted": true}
	for said["partitions"] == nil {
		listed, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return nil, err
		}
		if listed.Topics[0].Error == nil {
			said["partitions"] = len(listed.Topics[0].Partitions)
		}
	}
	described, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
	}}})
	if err != nil {
		return nil, err
	}
	if err := described.Resources[0].Error; err != nil {
		return nil, err
	}
	said["retention"] = described.Resources[0].ConfigEntries[0].ConfigValue
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	return said, deleted.Errors[topic]
}

func name(err error) string {
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, one := range several {
			if one != nil {
				return name(one)
			}
		}
	}
	var code kafka.Error
	if errors.As(err, &code) {
		return code.Title()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "DeadlineExceeded"
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	run("kafka-go "+version("github.com/segmentio/kafka-go"), name, map[string]func(string, string) (outcome, error){
		"group": group, "admin": admin,
	})
}
