// Load for relays: a client that keeps `depth` requests in flight on each of `conns` connections, and a sink that
// answers every request with a response of its own. Requests and responses are real Kafka frames from two template
// files (4 size bytes first); only the correlation id changes. Single thread each, epoll.
//
//   load sink PORT REQUEST RESPONSE [check]        answers; with check, every byte of a request is compared
//   load run HOST PORT REQUEST RESPONSE DEPTH CONNS SECONDS [check]
//       prints one JSON object: frames, seconds, bytes, p50_us, p99_us, mismatches
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 4096
#define BATCH 128
#define READ_BYTES (256 * 1024)

typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t id;  // where the correlation id stands
} frame_t;

typedef struct {
    int fd;
    const frame_t *in, *out;
    size_t in_at;         // bytes of the current incoming frame that were read
    uint8_t in_id[4];     // its correlation id, as far as read
    uint32_t queue[DEPTH_MAX];
    uint64_t sent_at[DEPTH_MAX];
    uint32_t head, tail;  // of the queue of ids to be sent
    size_t out_at;        // bytes of the frame at the head that were sent
    uint32_t next_id, expected;
} peer_t;

static uint8_t buffer[READ_BYTES];
static uint64_t mismatches;
static int checking;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static frame_t load_frame(const char *path, size_t id) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    frame_t frame = {NULL, (size_t)ftell(file), id};
    rewind(file);
    frame.bytes = malloc(frame.size);
    if (fread(frame.bytes, 1, frame.size, file) != frame.size) fail(path);
    fclose(file);
    return frame;
}

static void prepare(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void enqueue(peer_t *p, uint32_t id) { p->queue[p->tail++ % DEPTH_MAX] = id; }

// 0: all was sent or the socket is full; -1: the connection is gone
static int flush(peer_t *p) {
    while (p->head != p->tail) {
        struct iovec parts[3 * BATCH];
        uint32_t ids[BATCH];
        int n = 0;
        size_t total = 0, skip = p->out_at;
        const frame_t *f = p->out;
        for (uint32_t i = p->head; i != p->tail && i - p->head < BATCH && total < (4u << 20); i++) {
            ids[i - p->head] = htonl(p->queue[i % DEPTH_MAX]);
            struct { const uint8_t *at; size_t size; } piece[3] = {
                {f->bytes, f->id}, {(uint8_t *)&ids[i - p->head], 4}, {f->bytes + f->id + 4, f->size - f->id - 4}};
            for (int k = 0; k < 3; k++) {
                size_t cut = skip < piece[k].size ? skip : piece[k].size;
                skip -= cut;
                if (piece[k].size == cut) continue;
                parts[n].iov_base = (void *)(piece[k].at + cut);
                parts[n++].iov_len = piece[k].size - cut;
                total += piece[k].size - cut;
            }
        }
        ssize_t sent = writev(p->fd, parts, n);
        if (sent < 0) return errno == EAGAIN ? 0 : -1;
        int partial = (size_t)sent < total;
        size_t left = (size_t)sent + p->out_at;
        while (left >= f->size) {
            left -= f->size;
            p->head++;
        }
        p->out_at = left;
        if (partial) return 0;
    }
    return 0;
}

// calls `complete` for every whole frame; -1: the connection is gone
static int receive(peer_t *p, void (*complete)(peer_t *, uint32_t)) {
    for (int turn = 0; turn < 4; turn++) {
        ssize_t got = recv(p->fd, buffer, sizeof buffer, 0);
        if (got == 0) return -1;
        if (got < 0) return errno == EAGAIN ? 0 : -1;
        const frame_t *f = p->in;
        for (size_t at = 0; at < (size_t)got;) {
            size_t take = f->size - p->in_at;
            if (take > (size_t)got - at) take = (size_t)got - at;
            for (size_t k = 0; k < 4; k++)
                if (f->id + k >= p->in_at && f->id + k < p->in_at + take)
                    p->in_id[k] = buffer[at + f->id + k - p->in_at];
            if (checking) {
                for (size_t k = 0; k < take; k++) {
                    size_t here = p->in_at + k;
                    if ((here < f->id || here >= f->id + 4) && buffer[at + k] != f->bytes[here]) mismatches++;
                }
            }
            at += take;
            p->in_at += take;
            if (p->in_at == f->size) {
                uint32_t id;
                memcpy(&id, p->in_id, 4);
                p->in_at = 0;
                complete(p, ntohl(id));
            }
        }
        if ((size_t)got < sizeof buffer) return 0;
    }
    return 1;  // there may be more
}

// --- sink -------------------------------------------------------------------------------------------------

static void answer(peer_t *p, uint32_t id) {
    if (p->tail - p->head >= DEPTH_MAX) { fputs("too many requests in flight\n", stderr); exit(1); }
    enqueue(p, id);
}

static int sink(int port, frame_t *request, frame_t *response) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, poll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&where, sizeof where) || listen(listener, 4096)) fail("sink");
    fcntl(listener, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            peer_t *p = events[i].data.ptr;
            if (!p) {
                int fd;
                while ((fd = accept(listener, NULL, NULL)) >= 0) {
                    prepare(fd);
                    p = calloc(1, sizeof *p);
                    p->fd = fd, p->in = request, p->out = response;
                    event.events = EPOLLIN | EPOLLOUT | EPOLLET, event.data.ptr = p;
                    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                }
                continue;
            }
            int state = 1;
            while (state == 1) {
                state = receive(p, answer);
                if (state >= 0 && flush(p) < 0) state = -1;
            }
            if (state < 0) {
                close(p->fd);
                free(p);
            }
        }
    }
    return 0;
}

// --- client -----------------------------------------------------------------------------------------------

static uint32_t *latencies;
static uint64_t latency_count, frames;
static const uint64_t LATENCY_MAX = 8000000;
static int measuring;

static void ask(peer_t *p) {
    p->sent_at[p->next_id % DEPTH_MAX] = now_ns();
    enqueue(p, p->next_id++);
}

static void answered(peer_t *p, uint32_t id) {
    if (id != p->expected) mismatches++;
    p->expected++;
    if (measuring) {
        frames++;
        if (latency_count < LATENCY_MAX) latencies[latency_count++] = (uint32_t)((now_ns() - p->sent_at[id % DEPTH_MAX]) / 100);
    }
    ask(p);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int run(const char *host, int port, frame_t *request, frame_t *response, int depth, int conns, double seconds) {
    int poll = epoll_create1(0);
    struct epoll_event event, events[256];
    latencies = malloc(LATENCY_MAX * sizeof *latencies);
    for (int i = 0; i < conns; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        inet_pton(AF_INET, host, &where.sin_addr);
        if (connect(fd, (void *)&where, sizeof where)) fail("connect");
        prepare(fd);
        peer_t *p = calloc(1, sizeof *p);
        p->fd = fd, p->in = response, p->out = request;
        event.events = EPOLLIN | EPOLLOUT | EPOLLET, event.data.ptr = p;
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        for (int k = 0; k < depth; k++) ask(p);
        if (flush(p) < 0) fail("send");
    }
    uint64_t start = now_ns(), begin = start + (uint64_t)(seconds * 0.25e9), end = begin + (uint64_t)(seconds * 1e9);
    for (;;) {
        int n = epoll_wait(poll, events, 256, 1000);
        uint64_t now = now_ns();
        if (!measuring && now >= begin) measuring = 1, begin = now;
        if (now >= end) {
            end = now;
            break;
        }
        if (n == 0 && now > begin + 15000000000ull) { fputs("no answer for seconds\n", stderr); exit(1); }
        for (int i = 0; i < n; i++) {
            peer_t *p = events[i].data.ptr;
            int state = 1;
            while (state == 1) {
                state = receive(p, answered);
                if (state >= 0 && flush(p) < 0) state = -1;
            }
            if (state < 0) { fputs("a connection was closed\n", stderr); exit(1); }
        }
    }
    qsort(latencies, latency_count, sizeof *latencies, compare);
    double took = (double)(end - begin) / 1e9;
    double bytes = (double)frames * (double)(request->size + response->size);
    printf("{\"frames\": %llu, \"seconds\": %.6f, \"bytes\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"mismatches\": %llu}\n",
           (unsigned long long)frames, took, bytes,
           latency_count ? latencies[latency_count / 2] / 10.0 : 0,
           latency_count ? latencies[latency_count * 99 / 100] / 10.0 : 0, (unsigned long long)mismatches);
    return mismatches ? 3 : 0;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count >= 5 && !strcmp(words[1], "sink")) {
        frame_t request = load_frame(words[3], 8), response = load_frame(words[4], 4);
        checking = count > 5;
        return sink(atoi(words[2]), &request, &response);
    }
    if (count >= 9 && !strcmp(words[1], "run")) {
        frame_t request = load_frame(words[4], 8), response = load_frame(words[5], 4);
        checking = count > 9;
        int depth = atoi(words[6]);
        if (depth < 1 || depth > DEPTH_MAX / 2) { fputs("depth: 1 to 2048\n", stderr); return 2; }
        return run(words[2], atoi(words[3]), &request, &response, depth, atoi(words[7]), atof(words[8]));
    }
    fputs("load sink PORT REQUEST RESPONSE [check]\n"
          "load run HOST PORT REQUEST RESPONSE DEPTH CONNS SECONDS [check]\n", stderr);
    return 2;
}
