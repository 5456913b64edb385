package store

import "time"

// SetLimit changes how long the store's own transactions may take.
func (s *Store) SetLimit(d time.Duration) { s.limit = d }
