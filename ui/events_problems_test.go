package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A problem is one event when it begins, also if its numbers change, and one when it is over. One that is there at a single look is none.
func TestProblemsAreEvents(t *testing.T) {
	var s seen
	look := func(second int, problems ...string) {
		var list []Problem
		for _, subject := range problems {
			list = append(list, Problem{subject, fmt.Sprintf("%s: for %d s", subject, second)})
		}
		s.lookAtProblems(time.Unix(int64(second), 0), list)
	}
	got := func() string {
		var all []string
		for _, e := range s.list() {
			all = append(all, fmt.Sprintf("%d %s: %s, %s", e.At.Unix(), e.Kind, e.Target, e.Reason))
		}
		return strings.Join(all, "; ")
	}
	want := ""
	for i, step := range []struct {
		problems []string
		want     string // is added
	}{
		{[]string{"etcd"}, ""},
		{[]string{"etcd", "disk"}, "0 Problem began: etcd, etcd: for 2 s"},
		{[]string{"etcd"}, ""}, // the other one was there once
		{nil, ""},
		{nil, ""},
		{[]string{"etcd", "etcd"}, ""}, // it comes and goes
		{[]string{"etcd", "disk"}, ""},
		{[]string{"disk"}, "12 Problem began: disk, disk: for 14 s"},
		{[]string{"disk"}, ""},
		{[]string{"disk"}, "14 Problem ended: etcd, it lasted 14s"},
		{[]string{"disk", "etcd"}, ""},
		{[]string{"disk", "etcd"}, "20 Problem began: etcd, etcd: for 22 s"},
	} {
		look(2*i, step.problems...)
		if want += "; " + step.want; step.want == "" {
			want = strings.TrimSuffix(want, "; ")
		}
		if want = strings.TrimPrefix(want, "; "); got() != want {
			t.Fatalf("after look %d\n%s\nwant\n%s", i, got(), want)
		}
	}
}

// Neither problems of many subjects nor those with long texts fill the memory of a node.
func TestBoundsOfProblems(t *testing.T) {
	var s seen
	for i := range 100 {
		var list []Problem
		for k := range 2 * maxProblems {
			list = append(list, Problem{fmt.Sprint(i/10, " ", k, strings.Repeat("é", maxProblemText)), strings.Repeat("é", maxProblemText)})
		}
		s.lookAtProblems(time.Unix(int64(i), 0), list)
	}
	if len(s.problems) > maxProblems || len(s.list()) != maxSeen {
		t.Errorf("%d problems, %d events", len(s.problems), len(s.list()))
	}
	for _, e := range s.list() {
		if len(e.Target) > maxProblemText || len(e.Reason) > maxProblemText {
			t.Fatalf("%d and %d bytes", len(e.Target), len(e.Reason))
		}
	}
}
