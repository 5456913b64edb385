package pgtest

import (
	"errors"
	"net/url"
	"strings"
)

// withDatabase returns a connection string, a URL or keywords, with another
// database in it.
func withDatabase(connection, database string) (string, error) {
	if !strings.HasPrefix(connection, "postgres://") && !strings.HasPrefix(connection, "postgresql://") {
		return connection + " dbname=" + database, nil // Of two the last one counts.
	}
	u, err := url.Parse(connection)
	if err != nil {
		return "", errors.New("the URL of the test server cannot be parsed") // It may hold a password.
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.Path, u.RawQuery = "/"+database, query.Encode()
	return u.String(), nil
}
