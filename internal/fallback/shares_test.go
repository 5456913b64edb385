package fallback_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestSharesFollowWeightsAndWhatSpeaksAgainstAnAccount(t *testing.T) {
	back := fine
	back.Share = 0.2
	open := barred(notify.WaitBreakerOpen, -1)
	for name, test := range map[string]struct {
		of      []fallback.Candidate
		weights []float64
		want    []float64
	}{
		"in order":                     {[]fallback.Candidate{fine, fine}, []float64{0, 0}, []float64{1, 0}},
		"the first is barred":          {[]fallback.Candidate{open, fine, fine}, []float64{0, 0, 0}, []float64{0, 1, 0}},
		"the first comes back":         {[]fallback.Candidate{back, fine}, []float64{0, 0}, []float64{0.2, 0.8}},
		"the only one comes back":      {[]fallback.Candidate{back, open}, []float64{0, 0}, []float64{1, 0}},
		"by weight":                    {[]fallback.Candidate{fine, fine, fine}, []float64{80, 20, 0}, []float64{0.8, 0.2, 0}},
		"one with a weight is barred":  {[]fallback.Candidate{open, fine, fine}, []float64{80, 20, 0}, []float64{0, 1, 0}},
		"all with a weight are barred": {[]fallback.Candidate{open, open, fine}, []float64{80, 20, 0}, []float64{0, 0, 1}},
		"one with a weight comes back": {[]fallback.Candidate{back, fine, fine}, []float64{50, 25, 25}, []float64{0.1, 0.45, 0.45}},
		"all are barred":               {[]fallback.Candidate{open, open}, []float64{0, 0}, []float64{0, 0}},
		"none":                         {nil, nil, []float64{}},
	} {
		if diff := cmp.Diff(test.want, fallback.Shares(test.of, test.weights), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What is shown is what Choose does, over many deliveries.
func TestSharesAreWhatChooseComesTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := candidates(t)
		for i := range of {
			of[i].Refused, of[i].Probe = false, false
			if of[i].Bar.Reason != "" {
				of[i] = barred(notify.WaitBreakerOpen, -1)
			}
		}
		want := fallback.Shares(of, make([]float64, len(of)))
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		const many = 4000
		got := make([]float64, len(of))
		for range many {
			for i := range of {
				of[i].Draw = random.Float64()
			}
			if i := fallback.Choose(of, fallback.Asked{Priority: notify.Normal, Stay: -1, Ends: noon}, noon); i >= 0 {
				got[i] += 1.0 / many
			}
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 0.05 {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}
