import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.regex.Pattern;

/**
 * What Java's regular expressions find, for the golden file `hbase/src/filter/testdata/patterns.txt`. Needs no jars:
 *
 * <pre>
 * java hbase/java/PatternGolden.java > hbase/src/filter/testdata/patterns.txt
 *
 * pattern FLAGS EXPRESSION          in hexadecimal
 *   # the expression as text
 *   found TEXT ...                  in hexadecimal, - for none
 *   not TEXT ...
 * </pre>
 */
public final class PatternGolden {
  private static final String[] EXPRESSIONS = {
    "a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?<=a|bc)d", "(?<=a{1,3})b", "^(?!.*secret).*$", "^(?=.*\\d)(?=.*[a-z]).{3,}$",
    "(a)\\1", "(a|b)\\1", "(.)(.)\\2\\1", "(?<first>a|b)c\\k<first>", "^(\\w+)-\\1$", "(a)?\\1b", "(a)|\\1b", "(?i)(a)\\1",
    "(a)\\10", "a++b", "a++a", "a*+b", "[ab]*+b", "a?+a", "^a{1,2}+a", "(?:ab)++c", "(?>a)b", "(?>a|ab)c", "(?>a*)a",
    "\\b(?=a)\\w+\\b", "(?=a)(?=.b)", "(?!a)(?!b).", "(?<![a-z])b(?![a-z])", "(?:(?=a)a|b)+c", "((?=a).)+b", "x(?!.*x)",
    "(?m)^(?=b)", "(?s)a(?=.b)", "(?x) a (?= b ) ", "\\Qa(?=b)\\E|(?=c)", "[(?=]a(?=b)", "(?<=^a)b", "(?<=\\s)a(?=\\s|$)",
    "(?<!^)b", "a(?=b(?=c))", "a(?!b(?!c))", "(?<=(a))b\\1", "(?=(a+))\\1b", "^(?:(a)|b)*\\1$", "(a*)*+b", "(?>(?>a)b)c",
    "[\\w&&[^b]]++b", "\\d{2,}+\\d", "(?<=\\d)(?=(?:\\d{3})+$)", "a}+(?=b)", "(?<=a)(?<=.)b", "(?i:A)(?=B)", "a(?=$)", "(?=.)\\z|^$",
  };
  private static final String ALPHABET = "aaaabbbbccdAB12x -s\n(}";
  private static final String[] TEXTS = {
    "", "a", "b", "ab", "aab", "aaab", "ba", "abc", "aa", "bb", "abba", "abc-abc", "abc-abd", "aAb", "a10", "aa0", "12", "123", "1234567",
    "bcd", "ad", "a b", "a\nb", "secret", "no secrets", "x1y", "xx", "acA", "aca", "bcb", "acb", "ababc", "a(?=b)", "c", "(ab", "a}}b", "AB",
  };

  public static void main(String[] args) {
    Random random = new Random(17);
    for (String expression : EXPRESSIONS) {
      for (int flags : new int[] {Pattern.DOTALL, 0}) {
        List<String> texts = new ArrayList<>(List.of(TEXTS));
        for (int i = 0; i < 40; i++) {
          StringBuilder text = new StringBuilder();
          for (int length = random.nextInt(9); length > 0; length--) {
            text.append(ALPHABET.charAt(random.nextInt(ALPHABET.length())));
          }
          texts.add(text.toString());
        }
        Pattern pattern = Pattern.compile(expression, flags);
        StringBuilder found = new StringBuilder("  found");
        StringBuilder not = new StringBuilder("  not");
        for (String text : texts.stream().distinct().toList()) {
          (pattern.matcher(text).find() ? found : not).append(' ').append(hex(text));
        }
        System.out.println("pattern " + flags + " " + hex(expression));
        System.out.println("  # " + expression);
        System.out.println(found);
        System.out.println(not);
      }
    }
  }

  private static String hex(String text) {
    StringBuilder hex = new StringBuilder();
    for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
      hex.append(String.format("%02x", b));
    }
    return hex.length() == 0 ? "-" : hex.toString();
  }
}
