/* signals.c - SIGINT, SIGTERM and SIGHUP. */
#include "base/signals.h"
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

static const struct {
    int number;
    const char *name;
} caught[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { CAUGHT = sizeof caught / sizeof caught[0] };

static const double repeat_seconds = 0.2;

static volatile sig_atomic_t received, child_group;
static bool agrees;
static int agreed;
static struct timespec received_at; /* written only by the handler, which blocks itself */

/* Ends the program as the signal does by default, and the process group of the child with it. */
static void end(int number) {
    if (child_group)
        kill(-child_group, SIGKILL);
    signal(number, SIG_DFL);
    raise(number); /* delivered when the handler returns */
}

static void remember(int number) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!received) {
        received_at = now;
        received = number;
        return;
    }
    double passed = (double)(now.tv_sec - received_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - received_at.tv_nsec);
    if (passed >= repeat_seconds)
        end(number);
}

static void install(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CAUGHT; i++)
        sigaddset(&action.sa_mask, caught[i].number);
    for (int i = 0; i < CAUGHT; i++)
        if (!sigaction(caught[i].number, NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(caught[i].number, &action, NULL);
}

void signals_catch(void) {
    install(remember);
}

void signals_end_child(void) {
    install(end);
}

int signals_received(void) {
    return agrees ? agreed : received;
}

int signals_caught(void) {
    return received;
}

void signals_agree(int number) {
    agrees = true;
    agreed = number;
}

const char *signals_name(int number) {
    for (int i = 0; i < CAUGHT; i++)
        if (caught[i].number == number)
            return caught[i].name;
    return "";
}

void signals_take_along(pid_t leader) {
    child_group = leader;
}
