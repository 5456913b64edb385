// Package migrations embeds the schema of Dispatcher. The files are applied in
// order, each in a transaction, after River's own migrations; see store.Migrate.
package migrations

import "embed"

// FS holds the *.sql files.
//
//go:embed *.sql
var FS embed.FS
