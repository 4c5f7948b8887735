package main

// franz-go. What it does is in ../../stages.py.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func clientOf(bootstrap string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ClientID("franz-go-client"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(wait), kgo.RecordDeliveryTimeout(wait), kgo.FetchMaxWait(200_000_000),
	}, more...)...)
}

func read(ctx context.Context, client *kgo.Client, count int) ([]string, error) {
	var found []string
	for len(found) < count {
		fetches := client.PollRecords(ctx, count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, string(r.Value)) })
	}
	return found, nil
}

func records(topic string, values []string, partitions int) []*kgo.Record {
	var made []*kgo.Record
	for n, value := range values {
		made = append(made, &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: []byte(value)})
	}
	return made
}

func offsets(ctx context.Context, bootstrap, group, topic string) (int64, error) {
	client, err := clientOf(bootstrap)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	sum := int64(0)
	for _, offset := range found[topic] {
		sum += offset.At
	}
	return sum, err
}

func group(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	topic := run + "-orders"
	var seen [][]string
	var committed []int64
	for _, turn := range []struct {
		word  string
		codec kgo.CompressionCodec
	}{{"plain", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}} {
		producer, err := clientOf(bootstrap, kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(turn.codec))
		if err != nil {
			return nil, err
		}
		err = producer.ProduceSync(ctx, records(topic, values(turn.word), 2)...).FirstErr()
		producer.Close()
		if err != nil {
			return nil, err
		}
		member, err := clientOf(bootstrap, kgo.ConsumerGroup(run+"-group"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return nil, err
		}
		found, err := read(ctx, member, 10)
		if err == nil {
			err = member.CommitUncommittedOffsets(ctx)
		}
		member.Close()
		if err != nil {
			return nil, err
		}
		sum, err := offsets(ctx, bootstrap, run+"-group", topic)
		if err != nil {
			return nil, err
		}
		seen, committed = append(seen, sorted(found)), append(committed, sum)
	}
	return outcome{"first": seen[0], "second": seen[1], "committed": committed}, nil
}

func defaults(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	producer, err := clientOf(bootstrap)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	err = producer.ProduceSync(ctx, &kgo.Record{Topic: run + "-booked", Partition: 1, Value: []byte("default")}).FirstErr()
	return outcome{"sent": 1}, err
}

func transactions(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	topic := run + "-booked"
	producer, err := clientOf(bootstrap, kgo.TransactionalID(run+"-tx"))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, turn := range []struct {
		values []string
		commit kgo.TransactionEndTry
	}{{booked[:3], kgo.TryCommit}, {[]string{"dropped"}, kgo.TryAbort}, {booked[3:], kgo.TryCommit}} {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := producer.ProduceSync(ctx, records(topic, turn.values, 1)...).FirstErr(); err != nil {
			return nil, err
		}
		if err := producer.EndTransaction(ctx, turn.commit); err != nil {
			return nil, err
		}
	}
	reader, err := clientOf(bootstrap, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found, err := read(ctx, reader, len(booked))
	return outcome{"committed": found}, err
}

func admin(bootstrap, run string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	topic, retention := run+"-made", "3600000"
	client, err := clientOf(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	asking := kadm.NewClient(client)
	if _, err := asking.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
		return nil, err
	}
	said := outcome{"deleted": true}
	for said["partitions"] == nil {
		listed, err := asking.ListTopics(ctx, topic)
		if err != nil {
			return nil, err
		}
		if of := listed[topic]; of.Err == nil {
			said["partitions"] = len(of.Partitions)
		} else if ctx.Err() != nil {
			return nil, of.Err
		}
	}
	configs, err := asking.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	told, err := configs.On(topic, nil)
	if err != nil {
		return nil, err
	}
	for _, config := range told.Configs {
		if config.Key == "retention.ms" {
			said["retention"] = config.MaybeValue()
		}
	}
	_, err = asking.DeleteTopic(ctx, topic)
	return said, err
}

func name(err error) string {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message
	}
	// The producer's own deadline and the context's run out together: which is told is chance.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrRecordTimeout) {
		return "DeadlineExceeded"
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	run("franz-go "+version("github.com/twmb/franz-go"), name, map[string]func(string, string) (outcome, error){
		"group": group, "defaults": defaults, "transactions": transactions, "admin": admin,
	})
}
