/* commands.h - the commands. Each takes argv from its own name on and returns the exit status. */
#ifndef FLEXLAB_COMMANDS_H
#define FLEXLAB_COMMANDS_H

int command_compare(int argc, char **argv);
int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_run(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_transpile(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_calibrate(int argc, char **argv);
int command_what_if(int argc, char **argv);
int command_wgan(int argc, char **argv);
int command_report(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_facts(int argc, char **argv);
int command_info(int argc, char **argv);

#endif
