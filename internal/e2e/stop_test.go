//go:build unix

package e2e_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

func TestTerminatedUnderLoadANodeEndsItsCallsAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	c.slow(t, callTime)
	leaving, staying := c.serve(t), c.serve(t)
	n := notifications(t, 1000)
	l := begin(t, []*node{leaving, staying}, 0, n, c.message)
	c.midway(t, n/5)
	leaving.signal(t, syscall.SIGTERM)
	asked := time.Now()
	if code := leaving.exit(t, 25*time.Second); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	took := time.Since(asked)
	if took > 15*time.Second {
		t.Errorf("with calls of %s it took %s to stop", callTime, took)
	}
	if c.isRegistered(t, leaving) {
		t.Error("it did not sign off")
	}
	l.wait(t)
	c.settled(t, n)

	stories := c.stories(t)
	t.Logf("stopped in %.1f s; %d posts were refused; %s", took.Seconds(), l.refused.Load(), outcomes(stories))
	wantNothingLostOrDoubled(t, stories)
	wantEveryCallRecorded(t, stories)
	for _, s := range stories {
		if len(s.attempts) != 1 || s.attempts[0].outcome != "accepted" {
			t.Errorf("a stop must disturb nobody: %s", s)
		}
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.slow(t, 8*time.Second)
	n := c.serve(t)
	n.post(t, object{
		"to": object{"webhook": c.address("webhook", 0)}, "chain": []object{{"channel": "webhook"}}, "content": object{"body": "x"},
	})
	eventually(t, 5*time.Second, "a call is under way", func() bool { return len(c.received("")) == 1 })
	n.signal(t, syscall.SIGINT)
	n.said(t, &n.stderr, 5*time.Second, `"msg":"stopping"`)
	eventually(t, 2*time.Second, "it stops listening", func() bool {
		_, err := n.call(t, http.MethodGet, "/livez", "", nil)
		return err != nil
	})
	if !n.running() {
		t.Fatal("it ended in the middle of a call")
	}
	n.signal(t, syscall.SIGINT)
	if code := n.exit(t, 2*time.Second); code == 0 {
		t.Error("broken off, its exit code is 0")
	}
}
