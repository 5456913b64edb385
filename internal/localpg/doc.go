// Package localpg runs a private PostgreSQL server from programs that are already
// installed on this machine: a throwaway one for tests, or one whose data stays
// for development. It never downloads anything, listens on a Unix socket only,
// and its server ends with the process that started it, however that one ends.
package localpg
