// The profile command alone, for trying it without the rest of Tokamak.
#include "timeline/command.h"

int main(int argc, char** argv) { return tk::profile_command(argc, argv); }
