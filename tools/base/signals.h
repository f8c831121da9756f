/* signals.h - SIGINT, SIGTERM and SIGHUP: in a training the first asks for an orderly end, a second ends the program at
 * once. */
#ifndef FLEXLAB_SIGNALS_H
#define FLEXLAB_SIGNALS_H

#include <sys/types.h>

/* Records a first signal from now on. A signal that the caller of the program ignores (nohup) remains ignored. One that
 * follows within a fifth of a second counts as the same: terminals and `timeout` send it twice. */
void signals_catch(void);
/* Instead, from now on a signal that ends the program also ends the process group of signals_take_along. */
void signals_end_child(void);
/* The signal that came, 0 without one. Of several ranks: the one that all have agreed on. */
int signals_received(void);
/* The signal that this process has caught; and the one that is received from now on, 0: none, for all ranks alike. */
int signals_caught(void);
void signals_agree(int number);
/* "SIGINT" and its like; "" for 0. */
const char *signals_name(int number);
/* The leader of a process group that a signal which ends the program kills too; 0: none. */
void signals_take_along(pid_t leader);

#endif
