// The makers of the moves in moves.def.
#pragma once

#include "moves/fuse/move.h"

namespace tk::fuse {

#define TK_MOVE(maker, where, site) Move maker();
#include "moves/fuse/moves.def"
#undef TK_MOVE

}  // namespace tk::fuse
