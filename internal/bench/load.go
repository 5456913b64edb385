package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// caller is a client of the API that costs next to nothing: one kept HTTP/1.1
// connection, requests that are bytes, and answers with a Content-Length.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

func dialCaller(ctx context.Context, addr string) (*caller, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("call the API: %w", err)
	}
	return newCaller(conn), nil
}

func newCaller(conn net.Conn) *caller { return &caller{conn: conn, in: bufio.NewReader(conn)} }

func (c *caller) close() { _ = c.conn.Close() }

var errAnswer = errors.New("call the API: an answer that cannot be read")

// do sends a request and reads the answer, whose body is good until the next one.
func (c *caller) do(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, fmt.Errorf("call the API: %w", err)
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, fmt.Errorf("call the API: %w", err)
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, nil, errAnswer
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, errAnswer
	}
	length := -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, nil, fmt.Errorf("call the API: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, errAnswer
			}
		}
	}
	if length < 0 || length > 16<<20 {
		return 0, nil, errAnswer
	}
	c.body = append(c.body[:0], make([]byte, length)...)
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return 0, nil, fmt.Errorf("call the API: %w", err)
	}
	return status, c.body, nil
}

// post is the bytes of a request with a body in JSON.
func (b *bench) post(addr, path string, body []byte) []byte {
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
		path, addr, b.key, jsonType, len(body))
	return append(head, body...)
}

// accept sends a batch and checks that every row was accepted.
func (b *bench) accept(ctx context.Context, addr, media string, body []byte, rows int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/notifications/batch", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+b.key)
	req.Header.Set("Content-Type", media)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send a batch: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("send a batch: %w", err)
	}
	if n := bytes.Count(answer, []byte(`"status":202`)); resp.StatusCode != http.StatusOK || n != rows {
		return fmt.Errorf("send a batch: status %d, %d of %d rows accepted: %.300s", resp.StatusCode, n, rows, answer)
	}
	return nil
}

// operate makes a call of an operator.
func (b *bench) operate(ctx context.Context, addr, path, body string) error {
	c, err := dialCaller(ctx, addr)
	if err != nil {
		return err
	}
	defer c.close()
	status, answer, err := c.do(b.post(addr, path, []byte(body)))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("call the API: status %d: %.300s", status, answer)
	}
	return err
}
