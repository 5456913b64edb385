package store

import "time"

// SetLimit changes how long the store's own transactions may take.
func (s *Store) SetLimit(d time.Duration) { s.limit = d }

// BeWary makes flushes look for locked rows first, as after they met one.
func (s *Store) BeWary() { s.wary.begin() }
