// The yardstick: what a relay costs that does nothing but receive and send. One thread, edge-triggered epoll,
// one shared buffer, backpressure by not reading.   yardstick PORT UPSTREAM_PORT [FILE]
// With FILE it also writes every byte there, as it comes and with nothing around it: what no lossless recording can beat
// that leaves the bytes to the page cache.
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
#include <unistd.h>

#define CHUNK (256 * 1024)

typedef struct end {
    int fd;
    struct end *other;
    uint8_t *waiting;  // what `other` did not take
    size_t size, at;
    int dead;
} end_t;

static uint8_t buffer[CHUNK];
static int poll_fd, record_fd = -1;

static void prepare(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void drop(end_t *e) {
    if (e->dead) return;
    e->dead = e->other->dead = 1;
    close(e->fd);
    close(e->other->fd);
}

// from `e` to its other end, until one of them has to wait
static void move(end_t *e) {
    end_t *to = e->other;
    while (e->at < e->size) {
        ssize_t sent = send(to->fd, e->waiting + e->at, e->size - e->at, 0);
        if (sent < 0) {
            if (errno != EAGAIN) drop(e);
            return;
        }
        e->at += (size_t)sent;
    }
    for (;;) {
        ssize_t got = recv(e->fd, buffer, sizeof buffer, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            drop(e);
            return;
        }
        if (got < 0) return;
        for (ssize_t done = 0; record_fd >= 0 && done < got;) {
            ssize_t wrote = write(record_fd, buffer + done, (size_t)(got - done));
            if (wrote < 0) perror("yardstick"), exit(1);
            done += wrote;
        }
        ssize_t sent = send(to->fd, buffer, (size_t)got, 0);
        if (sent < 0 && errno != EAGAIN) {
            drop(e);
            return;
        }
        if (sent < 0) sent = 0;
        if (sent < got) {
            if (!e->waiting) e->waiting = malloc(CHUNK);
            e->size = (size_t)(got - sent);
            e->at = 0;
            memcpy(e->waiting, buffer + sent, e->size);
            return;
        }
        if ((size_t)got < sizeof buffer) return;
    }
}

static void watch(end_t *e) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = e};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, e->fd, &event);
}

int main(int count, char **words) {
    if (count != 3 && count != 4) return fputs("yardstick PORT UPSTREAM_PORT [FILE]\n", stderr), 2;
    if (count == 4 && (record_fd = open(words[3], O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0) return perror(words[3]), 1;
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1]))}, there = here;
    here.sin_addr.s_addr = there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    there.sin_port = htons((uint16_t)atoi(words[2]));
    if (bind(listener, (void *)&here, sizeof here) || listen(listener, 4096)) return perror("yardstick"), 1;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    poll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(poll_fd, events, 256, -1);
        for (int i = 0; i < n; i++) {
            end_t *e = events[i].data.ptr;
            if (!e) {
                int fd;
                while ((fd = accept(listener, NULL, NULL)) >= 0) {
                    int up = socket(AF_INET, SOCK_STREAM, 0);
                    if (connect(up, (void *)&there, sizeof there)) {
                        close(fd), close(up);
                        continue;
                    }
                    prepare(fd), prepare(up);
                    end_t *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
                    a->fd = fd, b->fd = up, a->other = b, b->other = a;
                    watch(a), watch(b);
                }
                continue;
            }
            if (e->dead) continue;  // a pair stays allocated: this program lives for one measurement
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) move(e);
            if (!e->dead && events[i].events & EPOLLOUT) move(e->other);
        }
    }
}
