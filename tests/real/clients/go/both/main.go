// franz-go and sarama: one of them connects with TLS, or sends records and reads them as a group.
//
//	program LIBRARY connect BOOTSTRAP SECONDS CA [CERTIFICATE KEY] [old]
//	program LIBRARY group BOOTSTRAP CLIENT_ID TOPIC VALUE...
//
// connect tries again until it works or the time is over; old: with TLS 1.2 at most. group prints the values that it read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 120 * time.Second

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func secure(words []string) *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if words[len(words)-1] == "old" {
		config.MaxVersion, words = tls.VersionTLS12, words[:len(words)-1]
	}
	ca, err := os.ReadFile(words[0])
	check(err)
	config.RootCAs.AppendCertsFromPEM(ca)
	if len(words) > 1 {
		own, err := tls.LoadX509KeyPair(words[1], words[2])
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func connectFranz(ctx context.Context, bootstrap string, config *tls.Config) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DialTLSConfig(config))
	check(err)
	defer client.Close()
	return client.Ping(ctx)
}

func connectSarama(ctx context.Context, bootstrap string, config *tls.Config) error {
	settings := sarama.NewConfig()
	settings.Net.TLS.Enable, settings.Net.TLS.Config = true, config
	settings.Metadata.Retry.Max = 0
	client, err := sarama.NewClient([]string{bootstrap}, settings)
	if err == nil {
		client.Close()
	}
	return err
}

func groupFranz(ctx context.Context, bootstrap, id, topic string, values []string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID(id), kgo.ConsumerGroup("g-"+topic),
		kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer client.Close()
	for _, value := range values {
		check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
	}
	for found := 0; found < len(values); {
		fetches := client.PollRecords(ctx, len(values)-found)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Value)); found++ })
	}
	check(client.CommitUncommittedOffsets(ctx))
}

// A member of a group, which ends once it has read as many records as there are.
type member struct {
	stop context.CancelFunc
	left int
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		fmt.Println(string(message.Value))
		if m.left--; m.left == 0 {
			session.Commit()
			m.stop()
		}
	}
	return nil
}

func groupSarama(ctx context.Context, bootstrap, id, topic string, values []string) {
	settings := sarama.NewConfig()
	settings.ClientID = id
	settings.Producer.Return.Successes = true
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
	check(err)
	for _, value := range values {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		check(err)
	}
	check(producer.Close())
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, "g-"+topic, settings)
	check(err)
	reading, stop := context.WithCancel(ctx)
	reader := &member{stop: stop, left: len(values)}
	for reading.Err() == nil {
		check(group.Consume(reading, []string{topic}, reader))
	}
	check(ctx.Err())
	check(group.Close())
}

func main() {
	library, what, bootstrap, words := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	connect, group := connectFranz, groupFranz
	if library == "sarama" {
		connect, group = connectSarama, groupSarama
	}
	if what == "group" {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		group(ctx, bootstrap, words[0], words[1], words[2:])
		return
	}
	seconds, err := strconv.ParseFloat(words[0], 64)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	config := secure(words[1:])
	for connect(ctx, bootstrap, config) != nil && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
}
