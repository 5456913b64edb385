package sink

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/google/uuid"
)

var (
	answerWebhook = []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	errRequest    = errors.New("not a request that the sink reads")
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 1 << 20

// request is what matters of one.
type request struct {
	get    bool
	path   []byte
	length int
	id     id // of the webhook-id, zero for none
	body   []byte
}

// serveHTTP reads requests as HTTP/1.1 clients that keep a connection send them,
// with a Content-Length, and answers each.
//
//	POST /w/17           a webhook with the number 17
//	POST /slow/4000/17   the same, answered after 4000 ms
//	POST /2010-04-01/…   Twilio's message resource; the text begins with a number
//	GET /2010-04-01/…    what became of a message: it was sent
func (s *Sink) serveHTTP(c net.Conn, in *bufio.Reader) error {
	var r request
	for {
		if err := r.read(in); err != nil {
			return err
		}
		answer, err := s.answer(&r)
		if err != nil {
			return err
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

func (s *Sink) answer(r *request) ([]byte, error) {
	switch {
	case bytes.HasPrefix(r.path, []byte("/w/")):
		n, err := number(r.path[len("/w/"):])
		if err != nil || r.id == (id{}) {
			return nil, errRequest
		}
		s.arrived(n)
		s.received(r.id)
		return answerWebhook, nil
	case bytes.HasPrefix(r.path, []byte("/slow/")):
		wait, n, ok := bytes.Cut(r.path[len("/slow/"):], []byte("/"))
		ms, err := number(wait)
		if err != nil || !ok || r.id == (id{}) {
			return nil, errRequest
		}
		k, err := number(n)
		if err != nil {
			return nil, err
		}
		s.arrived(k)
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-s.closed:
			return nil, net.ErrClosed
		}
		s.received(r.id)
		return answerWebhook, nil
	case bytes.HasPrefix(r.path, []byte("/2010-04-01/")) && r.get:
		return twilioStatus(r.path)
	case bytes.HasPrefix(r.path, []byte("/2010-04-01/")):
		return s.twilio(r.body)
	}
	return nil, errRequest
}

// twilio answers as Twilio does when it has queued a message.
func (s *Sink) twilio(form []byte) ([]byte, error) {
	_, text, ok := bytes.Cut(form, []byte("Body="))
	if !ok {
		return nil, errRequest
	}
	digits := 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	n, err := number(text[:digits])
	if err != nil {
		return nil, err
	}
	s.arrived(n)
	s.received(numbered(n))
	return jsonAnswer("201 Created", fmt.Appendf(nil, `{"sid":"SM%032x","status":"queued","error_code":null,"num_segments":"1"}`, n)), nil
}

// twilioStatus answers who asks what became of a message: nothing yet.
func twilioStatus(path []byte) ([]byte, error) {
	sid, ok := bytes.CutSuffix(path[bytes.LastIndexByte(path, '/')+1:], []byte(".json"))
	if !ok || !bytes.HasPrefix(sid, []byte("SM")) {
		return nil, errRequest
	}
	return jsonAnswer("200 OK", fmt.Appendf(nil, `{"sid":"%s","status":"sent","error_code":null}`, sid)), nil
}

func jsonAnswer(status string, body []byte) []byte {
	head := fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", status, len(body))
	return append(head, body...)
}

// named is the id of a message that is known by a text; the zero one of none.
func named(text []byte) id {
	if len(text) == 0 {
		return id{}
	}
	if u, err := uuid.ParseBytes(text); err == nil {
		return id(u)
	}
	sum := sha256.Sum256(text)
	return id(sum[:16])
}

// numbered is the id of a message that is known by its number.
func numbered(n int64) id {
	var i id
	binary.BigEndian.PutUint64(i[:], 1)
	binary.BigEndian.PutUint64(i[8:], uint64(n))
	return i
}

func number(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return 0, errRequest
	}
	return n, nil
}

// read reads the next request into r, whose parts are good until the next one.
func (r *request) read(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	method, path, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return errRequest
	}
	r.get = string(method) == "GET"
	path, _, _ = bytes.Cut(path, []byte(" "))
	r.path = append(r.path[:0], path...)
	r.length, r.id = 0, id{}
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if err := r.header(line); err != nil {
			return err
		}
	}
	if r.length > maxBody {
		return errRequest
	}
	r.body = append(r.body[:0], make([]byte, r.length)...)
	_, err = io.ReadFull(in, r.body)
	return err
}

// header reads the two headers that matter.
func (r *request) header(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return errRequest
	}
	switch name, value := line[:colon], bytes.TrimSpace(line[colon+1:]); {
	case colon == len("content-length") && bytes.EqualFold(name, []byte("content-length")):
		n, err := number(value)
		if err != nil {
			return err
		}
		r.length = int(min(n, maxBody+1))
	case colon == len("webhook-id") && bytes.EqualFold(name, []byte("webhook-id")):
		r.id = named(value)
	case colon == len("transfer-encoding") && bytes.EqualFold(name, []byte("transfer-encoding")):
		return errRequest
	}
	return nil
}
