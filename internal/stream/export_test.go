package stream

// Joined reports whether the hub hands events to the follower.
func (s *Subscription) Joined() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.joined
}
