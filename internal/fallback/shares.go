package fallback

import "slices"

// Shares returns which part of new deliveries each of the candidates gets by
// [Choose], where they are asked in their order, or, where one of weights is
// positive, each first in proportion to its weight and those without one last. They
// add up to 1, or to 0 where none gets any. Draws are not looked at.
func Shares(candidates []Candidate, weights []float64) []float64 {
	s := sharing{of: candidates, weights: weights, out: make([]float64, len(candidates))}
	var left []int
	for i := range candidates {
		if c := &candidates[i]; c.Bar.Reason == "" && !c.Refused {
			left = append(left, i)
		}
	}
	s.deal(1, left, -1)
	return s.out
}

type sharing struct {
	of      []Candidate
	weights []float64
	out     []float64
}

// deal gives a part of the deliveries to those left. soft is the first that they
// passed, which gets what nobody takes.
func (s *sharing) deal(part float64, left []int, soft int) {
	if len(left) == 0 {
		if soft >= 0 {
			s.out[soft] += part
		}
		return
	}
	sum := 0.0
	for _, i := range left {
		sum += s.weights[i]
	}
	if sum == 0 {
		s.ask(part, left, 0, soft)
		return
	}
	for at, i := range left {
		if s.weights[i] > 0 {
			s.ask(part*s.weights[i]/sum, left, at, soft)
		}
	}
}

// ask gives the candidate at a place among those left its share of a part, and the
// rest of it to the others.
func (s *sharing) ask(part float64, left []int, at, soft int) {
	i := left[at]
	takes := min(max(s.of[i].Share, 0), 1)
	s.out[i] += part * takes
	if takes == 1 {
		return
	}
	if soft < 0 {
		soft = i
	}
	s.deal(part*(1-takes), slices.Delete(slices.Clone(left), at, at+1), soft)
}
