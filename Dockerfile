# The image of Dispatcher: one static program, no shell, an unprivileged user.
#
#   docker build -t dispatcher --build-arg VERSION="$(git describe --tags --always)" .
#
# Dockerfile.prebuilt beside it takes the program of bin/ in place of compiling.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd ./cmd
COPY internal ./internal
COPY migrations ./migrations
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/dispatcher ./cmd/dispatcher

FROM gcr.io/distroless/static-debian12:nonroot
LABEL org.opencontainers.image.title="Dispatcher" \
      org.opencontainers.image.description="Sends notifications through push, SMS, WhatsApp, email, Slack and webhooks, with fallback" \
      org.opencontainers.image.source="https://github.com/notification-dispatcher/dispatcher"
COPY --from=build /out/dispatcher /dispatcher
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["/dispatcher", "healthcheck"]
ENTRYPOINT ["/dispatcher"]
CMD ["serve"]
