#include "base/html.h"

#include <gtest/gtest.h>

namespace tk {
namespace {

TEST(Html, NothingEndsAnElementOrAnAttribute) {
  EXPECT_EQ(escaped("<a href=\"x\" title='y'>&amp;"),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;");
}

TEST(Html, ControlCharactersBecomeSpacesOthersStay) {
  EXPECT_EQ(escaped(std::string_view("a\0b\x1b[0m\n\t", 9)), "a b [0m\n\t");
  EXPECT_EQ(escaped("größer – 時"), "größer – 時");
  EXPECT_EQ(escaped(""), "");
}

}  // namespace
}  // namespace tk
