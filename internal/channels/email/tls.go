package email

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsConfig returns what TLS is done with; it is shared by all connections.
func (c Config) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.ServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // refused by check for hosts beyond the loopback
	}
	if c.CAFile == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca_file: holds no certificate in PEM")
	}
	return conf, nil
}
