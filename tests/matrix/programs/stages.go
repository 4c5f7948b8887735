package main

// What the programs of Go's clients share; stages.py says what a program does. Built together with each main.go.

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"time"
)

// wait is the bound of the tests, tests/harness/waiting.py.
var wait = patience()

func patience() time.Duration {
	seconds, err := strconv.ParseFloat(os.Getenv("BARNABAS_TEST_PATIENCE"), 64)
	if err != nil {
		seconds = 90
	}
	return time.Duration(seconds * float64(time.Second))
}

type outcome map[string]any

var errHangs = errors.New("the stage hangs")

var booked = []string{"booked 0", "booked 1", "booked 2", "end"}

func values(word string) []string {
	var made []string
	for n := 0; n < 10; n++ {
		made = append(made, fmt.Sprintf("%s %d", word, n))
	}
	return made
}

func sorted(values []string) []string {
	sort.Strings(values)
	return values
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, used := range info.Deps {
		if used.Path == module {
			return used.Version
		}
	}
	return ""
}

// within gives up on a stage that hangs; what it started ends with the program.
func within(stage func() (outcome, error)) (outcome, error) {
	type both struct {
		found outcome
		err   error
	}
	done := make(chan both, 1)
	go func() {
		found, err := stage()
		done <- both{found, err}
	}()
	select {
	case ended := <-done:
		return ended.found, ended.err
	case <-time.After(2 * wait):
		return nil, errHangs
	}
}

func run(client string, name func(error) string, stages map[string]func(bootstrap, run string) (outcome, error)) {
	bootstrap, id := os.Args[1], os.Args[2]
	said := outcome{"client": client}
	for _, stage := range []string{"group", "defaults", "transactions", "admin"} {
		if do, has := stages[stage]; has {
			found, err := within(func() (outcome, error) { return do(bootstrap, id) })
			if err != nil {
				found = outcome{"error": name(err), "text": err.Error()}
				if err == errHangs {
					found["error"] = "Timeout"
				}
			}
			said[stage] = found
			json.NewEncoder(os.Stdout).Encode(said) // after each: a panic ends the program
		}
	}
	os.Exit(0)
}
